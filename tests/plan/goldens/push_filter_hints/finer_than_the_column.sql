-- a bound between two milliseconds is not pushed: rounded, it could leave out a row
SELECT id FROM orders WHERE ts < TIMESTAMP '2024-01-01 00:00:00.000500' AND ts > TIMESTAMP '2023-01-01 00:00:00.999'
