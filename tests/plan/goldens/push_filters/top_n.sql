SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount DESC) AS rn FROM orders)
WHERE rn <= 3 AND user_id <> 'x' AND amount > 7
