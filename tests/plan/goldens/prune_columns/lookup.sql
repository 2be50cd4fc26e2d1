SELECT o.id, s.v FROM orders o JOIN side FOR SYSTEM_TIME AS OF o.p AS s ON o.user_id = s.k
