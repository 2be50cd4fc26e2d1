-- stays: below it would be tested on groups that the first part guards
SELECT * FROM (SELECT amount, COUNT(*) AS n FROM orders GROUP BY amount) WHERE n > 3 AND 100 / amount > 2
