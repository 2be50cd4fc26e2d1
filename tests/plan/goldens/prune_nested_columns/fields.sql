CREATE TABLE events (kind INT, bid ROW<id BIGINT, price BIGINT, url STRING>, note ROW<a STRING, b ROW<c INT, d INT>>)
WITH ('connector' = 'filesystem', 'path' = '${FOLDER}', 'format' = 'json');
SELECT kind, bid.price, note.b.c AS c FROM events WHERE bid.id > 3
