-- name: InsertNotice :exec
INSERT INTO outbox (
    request_id, destination, wanted_revision, sent_revision, reference, attempts, uncertain, unsettled,
    due_since, next_attempt_at, leased_until, failure, abandoned
) VALUES (
    @request_id, @destination, @wanted_revision, 0, '', 0, 0, 0,
    @due_since, 0, 0, '', 0
) ON CONFLICT (request_id, destination) DO NOTHING;

-- name: WantRevision :exec
-- WantRevision makes a request's notices due. One that is due already keeps its
-- place in the queue and its next attempt.
UPDATE outbox
SET
    wanted_revision = @revision,
    due_since = CASE WHEN wanted_revision > sent_revision THEN due_since ELSE CAST(@due_since AS BIGINT) END,
    next_attempt_at = CASE WHEN wanted_revision > sent_revision THEN next_attempt_at ELSE 0 END
WHERE request_id = @request_id;

-- name: LeaseNotice :one
-- LeaseNotice takes the due notice that has waited longest. What an unsettled
-- first delivery came to is unknown, so the next lease is told of it. A time
-- after latest was written by a clock that was ahead, and has come.
UPDATE outbox
SET
    attempts = attempts + 1,
    uncertain = unsettled,
    unsettled = CASE WHEN reference = '' THEN 1 ELSE 0 END,
    leased_until = @until
WHERE
    outbox.destination = @destination
    AND (outbox.leased_until <= CAST(@now AS BIGINT) OR outbox.leased_until > CAST(@latest AS BIGINT))
    AND outbox.request_id = (
        SELECT due.request_id FROM outbox AS due
        WHERE
            due.destination = @destination
            AND due.wanted_revision > due.sent_revision
            AND due.abandoned = 0
            AND (due.next_attempt_at <= CAST(@now AS BIGINT) OR due.next_attempt_at > CAST(@latest AS BIGINT))
            AND (due.leased_until <= CAST(@now AS BIGINT) OR due.leased_until > CAST(@latest AS BIGINT))
        ORDER BY due.due_since, due.request_id
        LIMIT 1
    )
RETURNING *;

-- name: SettleNotice :execrows
-- SettleNotice ends the lease that the notice came from; nothing if another
-- worker has taken it over.
UPDATE outbox
SET
    sent_revision = @sent_revision,
    reference = @reference,
    attempts = @attempts,
    unsettled = @unsettled,
    due_since = @due_since,
    next_attempt_at = @next_attempt_at,
    leased_until = 0,
    failure = @failure,
    abandoned = @abandoned
WHERE
    request_id = @request_id
    AND destination = @destination
    AND leased_until = CAST(@lease_until AS BIGINT)
    AND attempts = CAST(@lease_attempts AS BIGINT);

-- name: NextNotice :one
-- NextNotice is when LeaseNotice finds something; 0 is at once.
SELECT CAST(CASE WHEN waiting.leased > waiting.postponed THEN waiting.leased ELSE waiting.postponed END AS BIGINT) AS at
FROM (
    SELECT
        CASE WHEN leased_until > CAST(@latest AS BIGINT) THEN 0 ELSE leased_until END AS leased,
        CASE WHEN next_attempt_at > CAST(@latest AS BIGINT) THEN 0 ELSE next_attempt_at END AS postponed
    FROM outbox
    WHERE destination = @destination AND wanted_revision > sent_revision AND abandoned = 0
) AS waiting
ORDER BY at
LIMIT 1;
