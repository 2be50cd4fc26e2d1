-- A big table is joined with one that matches every row first; a small filtered one comes last.
SELECT s.id, c.name, p.brand FROM sales s JOIN customers c ON s.customer = c.id JOIN parts p ON s.part = p.id WHERE p.brand = 'b7' AND p.size < 3
