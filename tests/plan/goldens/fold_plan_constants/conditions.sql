-- 1 + 2 is computed once, what always holds is not asked, and nothing is asked twice
SELECT id, amount + (1 + 2) AS more FROM orders WHERE 1 < 2 AND amount > 10 * 2 AND amount > 20 AND CHAR_LENGTH('abc') = 3
