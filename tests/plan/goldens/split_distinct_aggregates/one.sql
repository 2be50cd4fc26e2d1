SET 'table.optimizer.distinct-agg.split.enabled' = 'true';
SELECT currency, COUNT(DISTINCT user_id) AS users, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY currency
