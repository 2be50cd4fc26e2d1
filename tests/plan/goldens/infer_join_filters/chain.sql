-- and of further joins' on it
SELECT o.id, c.url, d.other FROM orders o JOIN clicks c ON o.user_id = c.user_id JOIN clicks d ON c.user_id = d.user_id
WHERE o.user_id IN ('ann', 'bob')
