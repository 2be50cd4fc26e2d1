-- what stands left of a comparison bounds the other side
SELECT id FROM orders WHERE 50 < id AND 90 >= id AND 5 <= amount AND 100 > amount AND 'EUR' <> currency
