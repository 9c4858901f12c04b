-- name: SaveTool :exec
INSERT INTO tools (server, name, seen_pin, seen_definition, seen_at, pinned_pin, pinned_definition, pinned_at, pinned_by)
VALUES (@server, @name, @seen_pin, @seen_definition, @seen_at, @pinned_pin, @pinned_definition, @pinned_at, @pinned_by)
ON CONFLICT (server, name) DO UPDATE SET
    seen_pin = excluded.seen_pin,
    seen_definition = excluded.seen_definition,
    seen_at = excluded.seen_at,
    pinned_pin = excluded.pinned_pin,
    pinned_definition = excluded.pinned_definition,
    pinned_at = excluded.pinned_at,
    pinned_by = excluded.pinned_by;

-- name: LoadTool :one
SELECT * FROM tools
WHERE server = @server AND name = @name;

-- name: ListTools :many
SELECT * FROM tools
ORDER BY server, name;
