-- How often each word occurs: a Python table function splits the lines, the counts are printed as they change.
CREATE FUNCTION words AS 'functions.words_of' LANGUAGE PYTHON;

CREATE TABLE lines (
  line STRING
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/text/',
  'format' = 'raw'
);

SELECT word, COUNT(*) AS n
FROM lines CROSS JOIN LATERAL TABLE(words(line)) AS w (word)
GROUP BY word
ORDER BY n DESC, word
LIMIT 10;
