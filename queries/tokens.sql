-- name: InsertToken :exec
INSERT INTO tokens (id, agent, owner_workspace, owner_user, hash, created_at, created_by, revoked_at)
VALUES (@id, @agent, @owner_workspace, @owner_user, @hash, @created_at, @created_by, @revoked_at);

-- name: RevokeToken :one
UPDATE tokens
SET revoked_at = CAST(@revoked_at AS BIGINT)
WHERE id = @id AND revoked_at IS NULL
RETURNING *;

-- name: ListTokens :many
SELECT * FROM tokens
ORDER BY created_at, id;

-- name: TokenByHash :one
SELECT * FROM tokens
WHERE hash = @hash AND revoked_at IS NULL;
