SELECT o.id FROM orders o JOIN clicks c ON o.user_id = c.user_id AND o.amount > c.order_id
