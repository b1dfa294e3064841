-- Inserts, indexes and joins in memory.  SCALE is replaced by a number.
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, region INTEGER);
CREATE TABLE item(id INTEGER PRIMARY KEY, label TEXT, price INTEGER);
CREATE TABLE sale(id INTEGER PRIMARY KEY, customer INTEGER, item INTEGER, amount INTEGER, day INTEGER);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50 * SCALE)
INSERT INTO customer SELECT i, 'customer ' || (i * 7919 % 10007), i * 31 % 12 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20 * SCALE)
INSERT INTO item SELECT i, 'item ' || (i * 104729 % 10009), i * 17 % 501 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000 * SCALE)
INSERT INTO sale SELECT i, 1 + i * 7919 % (50 * SCALE), 1 + i * 104729 % (20 * SCALE), i % 9, i % 365 FROM n;
COMMIT;
CREATE INDEX sale_customer ON sale(customer, day);
CREATE INDEX sale_item ON sale(item);
CREATE INDEX customer_name ON customer(name);
SELECT region, count(*), sum(amount * price) FROM sale JOIN customer ON customer.id = sale.customer
  JOIN item ON item.id = sale.item GROUP BY region ORDER BY region;
SELECT name, total FROM (SELECT c.name, sum(s.amount) AS total FROM customer c
  JOIN sale s ON s.customer = c.id WHERE s.day BETWEEN 100 AND 200 GROUP BY c.id)
  ORDER BY total DESC, name LIMIT 10;
SELECT count(*) FROM item a JOIN item b ON a.price = b.price AND a.id < b.id;
UPDATE sale SET amount = amount + 1 WHERE item IN (SELECT id FROM item WHERE label LIKE '%7');
DELETE FROM sale WHERE day % 50 = 3;
SELECT count(*), sum(amount), max(length(label)) FROM sale JOIN item ON item.id = sale.item;
SELECT substr(name, 1, 11) AS prefix, count(*) FROM customer GROUP BY prefix ORDER BY 2 DESC, 1 LIMIT 5;
