CREATE TABLE events (kind INT, bid ROW<id BIGINT, price BIGINT, url STRING>)
WITH ('connector' = 'filesystem', 'path' = '${FOLDER}', 'format' = 'json');
SELECT kind, MAX(bid.price) AS most FROM events GROUP BY kind
