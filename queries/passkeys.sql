-- name: InsertPasskey :execrows
INSERT INTO passkeys (id, owner_workspace, owner_user, name, credential, sign_count, enrolled_at, used_at)
VALUES (@id, @owner_workspace, @owner_user, @name, @credential, @sign_count, @enrolled_at, @used_at)
ON CONFLICT (id) DO NOTHING;

-- name: UsePasskey :execrows
-- UsePasskey does nothing if the passkey was used or removed since it was
-- loaded.
UPDATE passkeys
SET sign_count = @sign_count, used_at = @used_at
WHERE id = @id AND sign_count = CAST(@loaded_sign_count AS BIGINT);

-- name: DeletePasskey :execrows
DELETE FROM passkeys
WHERE id = @id;

-- name: ListPasskeys :many
SELECT * FROM passkeys
WHERE owner_workspace = @owner_workspace AND owner_user = @owner_user
ORDER BY enrolled_at, id;
