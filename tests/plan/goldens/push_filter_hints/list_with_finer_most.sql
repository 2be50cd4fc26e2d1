-- stays: a bound between two milliseconds is not pushed, and takes the other with it
CREATE TABLE fine (id BIGINT, at TIMESTAMP(6)) WITH ('connector' = 'datagen');
SELECT id FROM fine WHERE at IN (TIMESTAMP '2024-01-01 00:00:00.000000', TIMESTAMP '2024-01-02 00:00:00.000500')
