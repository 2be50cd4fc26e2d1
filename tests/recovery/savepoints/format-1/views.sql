-- State of job kept, savepoint 1, as DuckDB views.
-- In DuckDB: .read views.sql   If this folder was moved, first: SET VARIABLE flowrun_root = '/its/path/now';
SET VARIABLE flowrun_root = coalesce(getvariable('flowrun_root'), '/srv/flowrun/savepoint-kept-1');
CREATE OR REPLACE TEMP VIEW "tumbling.partials" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/tumbling-d4bc7983-partials-0-3ac43844.parquet', getvariable('flowrun_root') || '/tumbling-d4bc7983-partials-1-57dce69f.parquet']);
CREATE OR REPLACE TEMP VIEW "tumbling.distinct_n" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/tumbling-d4bc7983-distinct_n-0-0f8d9b4f.parquet', getvariable('flowrun_root') || '/tumbling-d4bc7983-distinct_n-1-b599c2c1.parquet']);
CREATE OR REPLACE TEMP VIEW "sliding.partials" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/sliding-7787fcf9-partials-0-4e9c4e65.parquet', getvariable('flowrun_root') || '/sliding-7787fcf9-partials-1-b1f3f75e.parquet']);
CREATE OR REPLACE TEMP VIEW "session.partials" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/session-40fb52e4-partials-0-7f345f83.parquet', getvariable('flowrun_root') || '/session-40fb52e4-partials-1-d83d2669.parquet']);
CREATE OR REPLACE TEMP VIEW "counted.keys" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/counted-b9a6ec67-keys-0-0a1b3edf.parquet', getvariable('flowrun_root') || '/counted-b9a6ec67-keys-1-783b5bd9.parquet']);
CREATE OR REPLACE TEMP VIEW "counted.partials" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/counted-b9a6ec67-partials-0-d2bb2096.parquet', getvariable('flowrun_root') || '/counted-b9a6ec67-partials-1-518e0864.parquet']);
CREATE OR REPLACE TEMP VIEW "triggered.windows" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/triggered-518858e2-windows-0-e5586691.parquet', getvariable('flowrun_root') || '/triggered-518858e2-windows-1-034f25c5.parquet']);
CREATE OR REPLACE TEMP VIEW "triggered.rows" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/triggered-518858e2-rows-0-21012fe3.parquet', getvariable('flowrun_root') || '/triggered-518858e2-rows-1-a8dedddb.parquet']);
CREATE OR REPLACE TEMP VIEW "triggered.timers" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/triggered-518858e2-timers-0-ebaf7285.parquet', getvariable('flowrun_root') || '/triggered-518858e2-timers-1-6473a9aa.parquet']);
CREATE OR REPLACE TEMP VIEW "noted.n" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/noted-a9ed5966-n-0-3f142185.parquet', getvariable('flowrun_root') || '/noted-a9ed5966-n-1-35b849b6.parquet']);
CREATE OR REPLACE TEMP VIEW "noted.due" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/noted-a9ed5966-due-0-07914b2a.parquet', getvariable('flowrun_root') || '/noted-a9ed5966-due-1-40df0178.parquet']);
CREATE OR REPLACE TEMP VIEW "noted.values" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/noted-a9ed5966-values-0-3af12633.parquet', getvariable('flowrun_root') || '/noted-a9ed5966-values-1-12783527.parquet']);
CREATE OR REPLACE TEMP VIEW "noted.by_digit" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/noted-a9ed5966-by_digit-0-8d1f5da0.parquet', getvariable('flowrun_root') || '/noted-a9ed5966-by_digit-1-7c732422.parquet']);
CREATE OR REPLACE TEMP VIEW "noted.timers" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/noted-a9ed5966-timers-0-6db260e4.parquet', getvariable('flowrun_root') || '/noted-a9ed5966-timers-1-30ae4a27.parquet']);
CREATE OR REPLACE TEMP VIEW "Source: rows.splits" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/Source-rows-745ff789-splits-a62b42ce.parquet']);
CREATE OR REPLACE TEMP VIEW "tumbling.progress" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/tumbling-d4bc7983-progress-b37df1b8.parquet']);
-- Sink: tumbling.committables has no rows
CREATE OR REPLACE TEMP VIEW "sliding.progress" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/sliding-7787fcf9-progress-ba8a6051.parquet']);
-- Sink: sliding.committables has no rows
CREATE OR REPLACE TEMP VIEW "session.progress" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/session-40fb52e4-progress-556b170a.parquet']);
-- Sink: session.committables has no rows
CREATE OR REPLACE TEMP VIEW "counted.sequence" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/counted-b9a6ec67-sequence-2f57a100.parquet']);
-- Sink: counted.committables has no rows
CREATE OR REPLACE TEMP VIEW "triggered.progress" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/triggered-518858e2-progress-1175a1d7.parquet']);
-- Sink: triggered.committables has no rows
CREATE OR REPLACE TEMP VIEW "noted.progress" AS
  SELECT * FROM read_parquet([getvariable('flowrun_root') || '/noted-a9ed5966-progress-42b4d5f8.parquet']);
-- Sink: noted.committables has no rows
