-- stays: it is off unless asked for
SELECT currency, COUNT(DISTINCT user_id) AS users FROM orders GROUP BY currency
