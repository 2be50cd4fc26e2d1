-- a member without rows goes, and with it its source
SELECT id, user_id FROM orders UNION ALL SELECT id, url FROM clicks WHERE 1 > 2
