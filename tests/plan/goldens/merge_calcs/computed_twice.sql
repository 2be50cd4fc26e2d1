-- the two Calcs of one step merge; with the view's, the condition and the projection would both compute UPPER
CREATE VIEW large AS SELECT id, UPPER(user_id) AS u FROM orders;
SELECT u FROM large WHERE u <> 'X'
