-- what is known of one side's key holds of the other's
SELECT o.id, c.url FROM orders o JOIN clicks c ON o.user_id = c.user_id AND o.user_id = 'ann'
