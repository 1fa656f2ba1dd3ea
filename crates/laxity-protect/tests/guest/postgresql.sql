-- The database of counts in PostgreSQL, for the guest that writes it and for the test that looks at
-- what a host left of it.

CREATE EXTENSION amcheck;

CREATE TABLE counts (count bigint PRIMARY KEY, text text UNIQUE, request bigint);
CREATE TABLE summary (highest bigint, sum numeric);
INSERT INTO summary VALUES (0, 0);

-- Counts that the database keeps. Older ones are deleted, so that a check takes the same time for
-- all that was counted.
CREATE FUNCTION kept() RETURNS bigint IMMUTABLE LANGUAGE sql RETURN 4096;

-- Adds the next count, and returns the highest one.
CREATE FUNCTION add(next bigint, request bigint) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO counts VALUES (next, lpad(next::text, 64, '0'), request);
    DELETE FROM counts WHERE count = next - kept();
    UPDATE summary SET highest = next, sum = sum + next - greatest(0, next - kept())
        RETURNING highest
$$;

-- The highest count, if each transaction is there with all that it wrote: no row is missing between
-- the oldest and the newest, and the sum is that of the rows. PostgreSQL's own checks raise an error
-- where an index contradicts its table, and give a row for each damage to a table.
CREATE VIEW checked AS
WITH found AS (
    SELECT count(*) AS rows, coalesce(min(count), 1) AS oldest, coalesce(max(count), 0) AS newest,
        coalesce(sum(count), 0) AS sum, count(*) FILTER (WHERE text != lpad(count::text, 64, '0')) AS strange
    FROM counts
), trees AS (
    SELECT count(*) AS checked
    FROM pg_class AS tree JOIN pg_am AS method ON method.oid = tree.relam,
        LATERAL bt_index_check(tree.oid, heapallindexed => true)
    WHERE tree.relkind = 'i' AND method.amname = 'btree'
), damage AS (
    SELECT FROM verify_heapam('counts') UNION ALL SELECT FROM verify_heapam('summary')
)
SELECT summary.highest
FROM summary, found, trees
WHERE found.rows = least(summary.highest, kept())
    AND found.newest = summary.highest
    AND found.oldest = summary.highest - found.rows + 1
    AND found.sum = summary.sum
    AND found.strange = 0
    AND trees.checked > 0
    AND NOT EXISTS (SELECT FROM damage);
