SET 'table.optimizer.distinct-agg.split.enabled' = 'true';
SET 'table.optimizer.distinct-agg.split.bucket-num' = '64';
SELECT currency, COUNT(DISTINCT user_id) FILTER (WHERE amount > 3) AS users, SUM(DISTINCT amount) AS s FROM orders GROUP BY currency
