-- name: InsertRequest :exec
INSERT INTO requests (
    id, agent, acts_for_workspace, acts_for_user, purpose, action, target, environment, stated_count, reversible,
    tool_pin, version, digest, ruling, status, reason, editors, execution_id,
    created_at, expires_at, decided_at, apply_by, closed_at, updated_at, deadline, revision
) VALUES (
    @id, @agent, @acts_for_workspace, @acts_for_user, @purpose, @action, @target, @environment, @stated_count, @reversible,
    @tool_pin, @version, @digest, @ruling, @status, @reason, @editors, @execution_id,
    @created_at, @expires_at, @decided_at, @apply_by, @closed_at, @updated_at, @deadline, @revision
);

-- name: UpdateRequest :execrows
-- UpdateRequest saves what can change in a request, under a compare-and-swap.
UPDATE requests
SET
    version = @version,
    digest = @digest,
    status = @status,
    reason = @reason,
    editors = @editors,
    execution_id = @execution_id,
    decided_at = @decided_at,
    apply_by = @apply_by,
    closed_at = @closed_at,
    updated_at = @updated_at,
    deadline = @deadline,
    revision = @revision
WHERE id = @id AND revision = @loaded_revision;

-- name: LoadRequest :one
-- LoadRequest returns a request even if its payload or its execution is lost, so
-- that this can be told from a request that there never was.
SELECT
    sqlc.embed(requests),
    payloads.payload,
    executions.version AS execution_version,
    executions.started_at,
    executions.finished_at,
    executions.outcome,
    executions.detail
FROM requests
LEFT JOIN payloads ON payloads.request_id = requests.id AND payloads.version = requests.version
LEFT JOIN executions ON executions.id = requests.execution_id
WHERE requests.id = @id;

-- name: InsertPayload :exec
INSERT INTO payloads (request_id, version, payload) VALUES (@request_id, @version, @payload);

-- name: InsertDecision :exec
INSERT INTO decisions (
    receipt, request_id, ordinal, approver_workspace, approver_user, verdict, reason, surface, version, digest, roles,
    decided_at, revision
) VALUES (
    @receipt, @request_id, @ordinal, @approver_workspace, @approver_user, @verdict, @reason, @surface, @version, @digest, @roles,
    @decided_at, @revision
);

-- name: LoadDecisions :many
-- LoadDecisions returns the decisions that a revision of the request has, so
-- that a request and its decisions fit together without a transaction.
SELECT * FROM decisions
WHERE request_id = @request_id AND revision <= @revision
ORDER BY ordinal;

-- name: InsertExecution :exec
INSERT INTO executions (id, request_id, version, started_at, finished_at, outcome, detail)
VALUES (@id, @request_id, @version, @started_at, @finished_at, @outcome, @detail);

-- name: FinishExecution :exec
UPDATE executions
SET finished_at = @finished_at, outcome = @outcome, detail = @detail
WHERE id = @id;

-- name: OverdueRequests :many
SELECT id FROM requests
WHERE deadline IS NOT NULL AND deadline <= CAST(@now AS BIGINT)
ORDER BY deadline, id
LIMIT CAST(@count AS BIGINT);

-- name: NextDeadline :one
SELECT deadline FROM requests
WHERE deadline IS NOT NULL
ORDER BY deadline
LIMIT 1;
