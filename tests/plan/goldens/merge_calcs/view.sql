CREATE VIEW large AS SELECT id, user_id, amount * 2 AS twice FROM orders WHERE amount > 5;
SELECT id + 1 AS next, twice FROM large WHERE user_id <> 'x'
