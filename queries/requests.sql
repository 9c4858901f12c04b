-- name: InsertRequest :exec
INSERT INTO requests (
    id, agent, acts_for_workspace, acts_for_user, purpose, action, target, environment, stated_count, reversible,
    executor, tool_pin, unpinned, hints, session, client_only, host_view, version, digest, effect, tier, ruling, rules, explanation, asked, reminders, escalated,
    status, reason, editors, granted_by, execution_id,
    created_at, expires_at, decided_at, apply_by, closed_at, updated_at, deadline, due_at, revision
) VALUES (
    @id, @agent, @acts_for_workspace, @acts_for_user, @purpose, @action, @target, @environment, @stated_count, @reversible,
    @executor, @tool_pin, @unpinned, @hints, @session, @client_only, @host_view, @version, @digest, @effect, @tier, @ruling, @rules, @explanation, @asked, @reminders, @escalated,
    @status, @reason, @editors, @granted_by, @execution_id,
    @created_at, @expires_at, @decided_at, @apply_by, @closed_at, @updated_at, @deadline, @due_at, @revision
);

-- name: UpdateRequest :execrows
-- UpdateRequest saves what can change in a request, under a compare-and-swap.
UPDATE requests
SET
    target = @target,
    client_only = @client_only,
    version = @version,
    digest = @digest,
    effect = @effect,
    tier = @tier,
    ruling = @ruling,
    rules = @rules,
    explanation = @explanation,
    reminders = @reminders,
    escalated = @escalated,
    status = @status,
    reason = @reason,
    editors = @editors,
    execution_id = @execution_id,
    decided_at = @decided_at,
    apply_by = @apply_by,
    closed_at = @closed_at,
    updated_at = @updated_at,
    deadline = @deadline,
    due_at = @due_at,
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
    executions.detail,
    executions.result_size,
    executions.returned_at,
    executions.settled_by_workspace,
    executions.settled_by_user,
    given.scope AS grant_scope,
    given.session AS grant_session,
    given.granted_at,
    given.expires_at AS grant_expires_at,
    given.revoked_at,
    given.revoked_by,
    under.scope AS under_scope,
    under.session AS under_session,
    under.granted_at AS under_granted_at,
    under.expires_at AS under_expires_at,
    under.revoked_at AS under_revoked_at,
    under.revoked_by AS under_revoked_by,
    CAST((
        SELECT COUNT(*) FROM requests AS used
        WHERE used.granted_by = requests.id AND used.granted_by <> '' AND used.status = 'applied'
    ) AS BIGINT) AS grant_uses
FROM requests
LEFT JOIN payloads ON payloads.request_id = requests.id AND payloads.version = requests.version
LEFT JOIN executions ON executions.id = requests.execution_id
LEFT JOIN grants AS given ON given.request_id = requests.id
LEFT JOIN grants AS under ON under.request_id = requests.granted_by
WHERE requests.id = @id;

-- name: InsertPayload :exec
INSERT INTO payloads (request_id, version, payload) VALUES (@request_id, @version, @payload);

-- name: LoadPayload :one
SELECT payload FROM payloads WHERE request_id = @request_id AND version = @version;

-- name: InsertDecision :exec
INSERT INTO decisions (
    receipt, signed_receipt, request_id, ordinal, approver_workspace, approver_user, verdict, reason, surface, scope, version, digest, roles, own,
    decided_at, revision
) VALUES (
    @receipt, @signed_receipt, @request_id, @ordinal, @approver_workspace, @approver_user, @verdict, @reason, @surface, @scope, @version, @digest, @roles, @own,
    @decided_at, @revision
);

-- name: LoadDecisions :many
-- LoadDecisions returns the decisions that a revision of the request has, so
-- that a request and its decisions fit together without a transaction.
SELECT * FROM decisions
WHERE request_id = @request_id AND revision <= @revision
ORDER BY ordinal;

-- name: InsertExecution :exec
INSERT INTO executions (
    id, request_id, executor, version, started_at, finished_at, outcome, detail, result_size, returned_at, settled_by_workspace, settled_by_user
) VALUES (
    @id, @request_id, @executor, @version, @started_at, @finished_at, @outcome, @detail, @result_size, @returned_at, @settled_by_workspace, @settled_by_user
);

-- name: UpdateExecution :exec
UPDATE executions
SET
    finished_at = @finished_at,
    outcome = @outcome,
    detail = @detail,
    result_size = @result_size,
    returned_at = @returned_at,
    settled_by_workspace = @settled_by_workspace,
    settled_by_user = @settled_by_user
WHERE id = @id;

-- name: InsertResult :exec
INSERT INTO results (execution_id, result) VALUES (@execution_id, @result);

-- name: LoadResult :one
SELECT result FROM results WHERE execution_id = @execution_id;

-- name: RunnableRequests :many
SELECT id FROM requests
WHERE executor = 'gateway' AND status = 'approved'
ORDER BY decided_at, id
LIMIT CAST(@count AS BIGINT);

-- name: UnfinishedRequests :many
SELECT request_id FROM executions
WHERE executor = 'gateway' AND finished_at IS NULL
ORDER BY started_at, request_id
LIMIT CAST(@count AS BIGINT);

-- name: OpenRuns :many
SELECT id FROM requests
WHERE action = @action AND executor = 'gateway' AND status IN ('pending', 'approved')
ORDER BY id;

-- name: SaveGrant :exec
INSERT INTO grants (request_id, scope, session, granted_at, expires_at, revoked_at, revoked_by)
VALUES (@request_id, @scope, @session, @granted_at, @expires_at, @revoked_at, @revoked_by)
ON CONFLICT (request_id) DO UPDATE SET revoked_at = excluded.revoked_at, revoked_by = excluded.revoked_by;

-- name: CountUse :one
-- CountUse has a request that gave a grant change with each use of it.
UPDATE requests
SET
    revision = revision + 1,
    updated_at = CASE WHEN updated_at < CAST(@at AS BIGINT) THEN CAST(@at AS BIGINT) ELSE updated_at END
WHERE id = @id
RETURNING revision, updated_at;

-- name: Grants :many
SELECT request_id FROM grants
WHERE revoked_at IS NULL AND expires_at > CAST(@now AS BIGINT)
ORDER BY expires_at;

-- name: GrantsFor :many
SELECT grants.request_id FROM grants
JOIN requests ON requests.id = grants.request_id
WHERE grants.revoked_at IS NULL AND grants.expires_at > CAST(@now AS BIGINT)
    AND requests.agent = @agent AND requests.acts_for_workspace = @acts_for_workspace AND requests.acts_for_user = @acts_for_user
    AND requests.action = @action AND requests.target = @target
ORDER BY grants.expires_at;

-- name: DueRequests :many
SELECT id FROM requests
WHERE due_at IS NOT NULL AND due_at <= CAST(@now AS BIGINT)
ORDER BY due_at, id
LIMIT CAST(@count AS BIGINT);

-- name: NextDue :one
SELECT due_at FROM requests
WHERE due_at IS NOT NULL
ORDER BY due_at
LIMIT 1;

-- name: CountPending :one
SELECT COUNT(*) FROM requests
WHERE agent = @agent AND acts_for_workspace = @acts_for_workspace AND acts_for_user = @acts_for_user
    AND status = 'pending' AND expires_at > CAST(@now AS BIGINT);

-- name: PendingTwins :many
-- PendingTwins returns at most one pending request of an agent that asks the
-- same of the same target, and says the same of it. -1 is "not stated". What the
-- gateway's calls act on follows from what they ask, until somebody edits it.
SELECT id FROM requests
WHERE asked = @asked AND agent = @agent AND acts_for_workspace = @acts_for_workspace AND acts_for_user = @acts_for_user
    AND executor = @executor AND (executor = 'gateway' OR target = @target)
    AND status = 'pending' AND expires_at > CAST(@now AS BIGINT)
    AND COALESCE(stated_count, -1) = CAST(@stated_count AS BIGINT)
    AND COALESCE(reversible, -1) = CAST(@reversible AS BIGINT)
LIMIT 1;

-- name: OpenTwins :many
-- OpenTwins returns at most one call of an agent that asks the same, that people
-- approved and that the gateway has yet to run, or whose result the agent hasn't
-- got, as long as the approval could be used.
SELECT requests.id FROM requests
LEFT JOIN executions ON executions.id = requests.execution_id
WHERE requests.asked = @asked AND requests.agent = @agent
    AND requests.acts_for_workspace = @acts_for_workspace AND requests.acts_for_user = @acts_for_user
    AND requests.executor = 'gateway' AND requests.effect = 'require_approval'
    AND requests.status IN ('approved', 'applied') AND requests.granted_by = '' AND requests.apply_by > CAST(@now AS BIGINT)
    AND executions.returned_at IS NULL
ORDER BY requests.apply_by DESC
LIMIT 1;

-- name: LastRejection :one
-- LastRejection returns when a person, or somebody in the host's view, last rejected
-- the same request of an agent, 0 for never.
SELECT CAST(COALESCE(MAX(decisions.decided_at), 0) AS BIGINT)
FROM requests
JOIN decisions ON decisions.request_id = requests.id
WHERE requests.asked = @asked AND requests.agent = @agent
    AND requests.acts_for_workspace = @acts_for_workspace AND requests.acts_for_user = @acts_for_user
    AND requests.status = 'rejected' AND requests.effect = 'require_approval'
    AND decisions.verdict = 'reject' AND decisions.surface NOT IN ('policy', 'in-band');

-- name: RecordUse :exec
INSERT INTO uses (agent, owner_workspace, owner_user, environment, integration, tool, last_used_at)
VALUES (@agent, @owner_workspace, @owner_user, @environment, @integration, @tool, @last_used_at)
ON CONFLICT (agent, owner_workspace, owner_user, environment, integration, tool)
DO UPDATE SET last_used_at = excluded.last_used_at;

-- name: LastUse :one
-- LastUse returns when an agent last used a tool, any tool of its integration,
-- and anything, in an environment; 0 for never.
SELECT
    CAST(COALESCE(MAX(CASE WHEN integration = @integration AND tool = @tool THEN last_used_at END), 0) AS BIGINT) AS of_tool,
    CAST(COALESCE(MAX(CASE WHEN integration = @integration THEN last_used_at END), 0) AS BIGINT) AS of_integration,
    CAST(COALESCE(MAX(last_used_at), 0) AS BIGINT) AS of_agent
FROM uses
WHERE agent = @agent AND owner_workspace = @owner_workspace AND owner_user = @owner_user AND environment = @environment;

-- name: RecentRequests :many
-- RecentRequests returns the newest requests as they were asked. Their ids are
-- in the order in which they were made.
SELECT sqlc.embed(requests), payloads.payload
FROM requests
JOIN payloads ON payloads.request_id = requests.id AND payloads.version = 1
ORDER BY requests.id DESC
LIMIT CAST(@count AS BIGINT);
