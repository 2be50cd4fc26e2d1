-- Keys that are computed, and NULL-safe ones, stay keys.
SELECT s.id, c.name, p.brand FROM sales s JOIN customers c ON s.customer IS NOT DISTINCT FROM c.id AND s.code = c.name
JOIN parts p ON UPPER(s.code) = UPPER(p.code) WHERE p.id = 7
