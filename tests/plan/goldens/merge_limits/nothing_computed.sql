-- stays: nothing is saved
SELECT url AS u, id AS i FROM clicks LIMIT 5
