-- name: LastEvent :one
SELECT sequence, hash FROM events
ORDER BY sequence DESC
LIMIT 1;

-- name: InsertEvent :exec
INSERT INTO events (sequence, type, at, request_id, actor, surface, version, digest, detail, previous, hash)
VALUES (@sequence, @type, @at, @request_id, @actor, @surface, @version, @digest, @detail, @previous, @hash);

-- name: EventsAfter :many
SELECT * FROM events
WHERE sequence > @after
ORDER BY sequence
LIMIT CAST(@count AS BIGINT);
