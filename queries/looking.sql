-- name: WaitingRequests :many
SELECT id FROM requests
WHERE status = 'pending' AND client_only = 0
    AND expires_at >= @expires_at AND (expires_at > @expires_at OR id > @id)
ORDER BY expires_at, id
LIMIT CAST(@count AS BIGINT);

-- name: LastLookedAt :one
-- LastLookedAt returns the oldest of so many requests before one; none if there
-- are fewer.
SELECT id FROM requests
WHERE id < @before AND id >= @first
ORDER BY id DESC
LIMIT 1 OFFSET CAST(@others AS BIGINT);

-- name: SearchRequests :many
-- SearchRequests looks at the requests from one until before another. What is
-- empty, or 0, is no filter. Replacing a text by nothing shows whether it is there,
-- for which the two databases have no function in common. Payloads and results
-- aren't searched.
SELECT requests.id FROM requests
WHERE requests.id < @before AND requests.id >= @first
    AND (CAST(@status AS TEXT) = '' OR requests.status = @status)
    AND (CAST(@tier AS BIGINT) = 0 OR requests.tier = @tier)
    AND (CAST(@agent AS TEXT) = '' OR requests.agent = @agent)
    AND (CAST(@action AS TEXT) = '' OR requests.action = @action)
    AND (CAST(@environment AS TEXT) = '' OR requests.environment = @environment)
    AND (CAST(@rule AS TEXT) = '' OR REPLACE(requests.rules, @rule, '') <> requests.rules)
    AND (CAST(@decided_by AS TEXT) = '' OR EXISTS (
        SELECT 1 FROM decisions
        WHERE decisions.request_id = requests.id AND decisions.approver_user = @decided_by
    ))
    AND (CAST(@text AS TEXT) = ''
        OR REPLACE(requests.id, LOWER(@text), '') <> requests.id
        OR REPLACE(LOWER(requests.purpose), LOWER(@text), '') <> LOWER(requests.purpose)
        OR REPLACE(LOWER(requests.action), LOWER(@text), '') <> LOWER(requests.action)
        OR REPLACE(LOWER(requests.target), LOWER(@text), '') <> LOWER(requests.target)
        OR REPLACE(LOWER(requests.agent), LOWER(@text), '') <> LOWER(requests.agent))
ORDER BY requests.id DESC
LIMIT CAST(@count AS BIGINT);

-- name: DecisionsOf :many
-- DecisionsOf returns the last decisions of a person. Receipts are in the order
-- in which they were made.
SELECT request_id, receipt FROM decisions
WHERE approver_workspace = @approver_workspace AND approver_user = @approver_user AND approver_user <> ''
ORDER BY receipt DESC
LIMIT CAST(@count AS BIGINT);

-- name: AskedOfPeople :many
-- AskedOfPeople leaves out what the agent's client decided, which may take back what
-- people approved.
SELECT action, tier, rules, status, created_at, decided_at, apply_by FROM requests
WHERE effect = 'require_approval' AND granted_by = '' AND client_only = 0
    AND created_at >= @since AND created_at < @until
    AND NOT EXISTS (
        SELECT 1 FROM decisions
        WHERE decisions.request_id = requests.id AND decisions.surface IN ('in-band', 'app')
            AND (decisions.verdict = 'approve' OR requests.apply_by IS NULL)
    )
ORDER BY created_at, id;

-- name: EventsOfRequest :many
SELECT * FROM events
WHERE request_id = @request_id AND request_id <> ''
ORDER BY sequence
LIMIT CAST(@count AS BIGINT);
