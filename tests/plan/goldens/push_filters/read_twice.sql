-- stays: what is below the filter is read without it as well
CREATE VIEW counted AS SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id;
SELECT a.n, b.n AS m FROM counted a JOIN counted b ON a.n = b.n WHERE a.user_id = 'x'
