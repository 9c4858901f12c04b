-- name: InsertPersonalNotice :exec
INSERT INTO personal_notices (
    id, person_workspace, person_user, kind, passkey, happened_at,
    reference, attempts, next_attempt_at, leased_until, failure, abandoned
) VALUES (
    @id, @person_workspace, @person_user, @kind, @passkey, @happened_at,
    '', 0, 0, 0, '', 0
);

-- name: LeasePersonalNotice :one
-- LeasePersonalNotice takes the oldest due notice of a workspace. A time after
-- latest was written by a clock that was ahead, and has come.
UPDATE personal_notices
SET
    attempts = attempts + 1,
    leased_until = @until
WHERE
    (personal_notices.leased_until <= CAST(@now AS BIGINT) OR personal_notices.leased_until > CAST(@latest AS BIGINT))
    AND personal_notices.id = (
        SELECT due.id FROM personal_notices AS due
        WHERE
            due.person_workspace = @workspace
            AND due.reference = ''
            AND due.abandoned = 0
            AND (due.next_attempt_at <= CAST(@now AS BIGINT) OR due.next_attempt_at > CAST(@latest AS BIGINT))
            AND (due.leased_until <= CAST(@now AS BIGINT) OR due.leased_until > CAST(@latest AS BIGINT))
        ORDER BY due.happened_at, due.id
        LIMIT 1
    )
RETURNING *;

-- name: SettlePersonalNotice :execrows
-- SettlePersonalNotice ends the lease that the notice came from; nothing if
-- another worker has taken it over.
UPDATE personal_notices
SET
    reference = @reference,
    next_attempt_at = @next_attempt_at,
    leased_until = 0,
    failure = @failure,
    abandoned = @abandoned
WHERE
    id = @id
    AND leased_until = CAST(@lease_until AS BIGINT)
    AND attempts = CAST(@lease_attempts AS BIGINT);

-- name: NextPersonalNotice :one
-- NextPersonalNotice is when LeasePersonalNotice finds something; 0 is at once.
SELECT CAST(CASE WHEN waiting.leased > waiting.postponed THEN waiting.leased ELSE waiting.postponed END AS BIGINT) AS at
FROM (
    SELECT
        CASE WHEN leased_until > CAST(@latest AS BIGINT) THEN 0 ELSE leased_until END AS leased,
        CASE WHEN next_attempt_at > CAST(@latest AS BIGINT) THEN 0 ELSE next_attempt_at END AS postponed
    FROM personal_notices
    WHERE person_workspace = @workspace AND reference = '' AND abandoned = 0
) AS waiting
ORDER BY at
LIMIT 1;
