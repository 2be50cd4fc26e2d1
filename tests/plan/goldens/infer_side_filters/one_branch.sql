-- stays: one branch says nothing of either side alone
SELECT o.id, c.url FROM orders o JOIN clicks c ON o.id = c.id AND ((o.amount > 5 AND c.url = 'a') OR o.user_id < c.user_id)
