-- TPC-H q5: customers and suppliers share nations, of which there are few; joining them by these makes many rows, though both are small.
SELECT c.name, n.name FROM customers c JOIN sales s ON s.customer = c.id JOIN suppliers v ON v.nation = c.nation AND s.supplier = v.id
JOIN nations n ON v.nation = n.id WHERE n.name = 'FRANCE'
