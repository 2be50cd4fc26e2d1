SELECT * FROM (SELECT user_id, currency, COUNT(*) AS n FROM orders GROUP BY user_id, ROLLUP (currency)) WHERE user_id = 'ann'
