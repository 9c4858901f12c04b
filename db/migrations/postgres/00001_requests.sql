-- Times are whole milliseconds since 1970 in UTC; NULL is "not yet".
-- "no text" is the empty string, so that NULL always means "not stated".

-- +goose Up
CREATE TABLE requests (
    id                 TEXT    NOT NULL PRIMARY KEY,
    agent              TEXT    NOT NULL,
    acts_for_workspace TEXT    NOT NULL,
    acts_for_user      TEXT    NOT NULL,
    purpose            TEXT    NOT NULL,
    action             TEXT    NOT NULL,
    target             TEXT    NOT NULL,
    environment        TEXT    NOT NULL,
    stated_count       BIGINT,
    reversible         BIGINT CHECK (reversible IN (0, 1)),
    executor           TEXT    NOT NULL CHECK (executor IN ('agent', 'gateway')),
    tool_pin           TEXT    NOT NULL,
    unpinned           BIGINT  NOT NULL CHECK (unpinned IN (0, 1)),
    hints              TEXT    NOT NULL, -- JSON of policy.Hints
    session            TEXT    NOT NULL,
    client_only        BIGINT  NOT NULL CHECK (client_only IN (0, 1)), -- only the agent's client was told
    host_view          BIGINT  NOT NULL CHECK (host_view IN (0, 1)), -- a view of the agent's host shows it
    version            BIGINT  NOT NULL CHECK (version >= 1),
    digest             BYTEA   NOT NULL,
    effect             TEXT    NOT NULL CHECK (effect IN ('allow', 'require_approval', 'deny')),
    tier               BIGINT  NOT NULL,
    ruling             TEXT    NOT NULL, -- JSON of policy.Ruling
    rules              TEXT    NOT NULL, -- the ids of its rules, each between line breaks
    explanation        TEXT    NOT NULL,
    asked              BYTEA   NOT NULL, -- the digest of version 1
    reminders          BIGINT  NOT NULL CHECK (reminders >= 0),
    escalated          BIGINT  NOT NULL CHECK (escalated IN (0, 1)),
    status             TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'applied')),
    reason             TEXT    NOT NULL,
    editors            TEXT    NOT NULL, -- JSON of []approval.Approver
    granted_by         TEXT    NOT NULL, -- the request whose grant approved it
    execution_id       TEXT,
    created_at         BIGINT  NOT NULL,
    expires_at         BIGINT  NOT NULL,
    decided_at         BIGINT,
    apply_by           BIGINT,
    closed_at          BIGINT,
    updated_at         BIGINT  NOT NULL,
    deadline           BIGINT, -- when the request expires unless something happens; NULL once the status is final
    due_at             BIGINT, -- the deadline, an earlier time to remind people, or when a grant ends
    revision           BIGINT  NOT NULL CHECK (revision >= 1),
    CHECK ((deadline IS NULL) = (status IN ('rejected', 'expired', 'applied'))),
    CHECK (deadline IS NULL OR (due_at IS NOT NULL AND due_at <= deadline)),
    CHECK ((closed_at IS NULL) = (status IN ('pending', 'approved'))),
    CHECK ((execution_id IS NULL) = (status <> 'applied')),
    CHECK (decided_at IS NULL OR status <> 'pending'),
    CHECK (status NOT IN ('approved', 'applied') OR (decided_at IS NOT NULL AND apply_by IS NOT NULL))
);

CREATE INDEX requests_due ON requests (due_at, id) WHERE due_at IS NOT NULL;

CREATE INDEX requests_pending ON requests (agent, acts_for_workspace, acts_for_user, expires_at) WHERE status = 'pending';

CREATE INDEX requests_runnable ON requests (decided_at, id) WHERE executor = 'gateway' AND status = 'approved';

CREATE INDEX requests_open_runs ON requests (action, id) WHERE executor = 'gateway' AND status IN ('pending', 'approved');

CREATE INDEX requests_asked_runs ON requests (asked, agent, acts_for_workspace, acts_for_user, apply_by) WHERE executor = 'gateway' AND status IN ('approved', 'applied') AND effect = 'require_approval';

CREATE INDEX requests_granted ON requests (granted_by) WHERE granted_by <> '';

CREATE INDEX requests_rejected ON requests (asked, agent) WHERE status = 'rejected' AND effect = 'require_approval';

CREATE INDEX requests_waiting ON requests (expires_at, id) WHERE status = 'pending' AND client_only = 0;

CREATE INDEX requests_for_people ON requests (created_at, id) WHERE effect = 'require_approval' AND granted_by = '' AND client_only = 0;

-- Every version of a payload is kept: a decision is about one of them. They
-- are apart from the requests so that a change of status rewrites none.
CREATE TABLE payloads (
    request_id TEXT    NOT NULL REFERENCES requests (id),
    version    BIGINT  NOT NULL CHECK (version >= 1),
    payload    BYTEA   NOT NULL,
    PRIMARY KEY (request_id, version)
);

CREATE TABLE decisions (
    receipt            TEXT    NOT NULL PRIMARY KEY,
    signed_receipt     TEXT    NOT NULL, -- empty if nobody signed it
    request_id         TEXT    NOT NULL REFERENCES requests (id),
    ordinal            BIGINT  NOT NULL CHECK (ordinal >= 1), -- its place among the request's decisions
    approver_workspace TEXT    NOT NULL,
    approver_user      TEXT    NOT NULL,
    verdict            TEXT    NOT NULL CHECK (verdict IN ('approve', 'reject')),
    reason             TEXT    NOT NULL,
    surface            TEXT    NOT NULL,
    scope              TEXT    NOT NULL,
    version            BIGINT  NOT NULL CHECK (version >= 1),
    digest             BYTEA   NOT NULL,
    roles              TEXT    NOT NULL, -- JSON of []approval.Membership
    own                BIGINT  NOT NULL CHECK (own IN (0, 1)), -- the approver's own request or edit
    decided_at         BIGINT  NOT NULL,
    revision           BIGINT  NOT NULL, -- the request's revision that has it first
    UNIQUE (request_id, ordinal),
    UNIQUE (request_id, version, approver_workspace, approver_user, verdict),
    CHECK ((surface IN ('policy', 'in-band', 'app', 'grant')) = (approver_workspace = '' AND approver_user = '')) -- everywhere else a person decides
);

CREATE INDEX decisions_of_people ON decisions (approver_workspace, approver_user, receipt) WHERE approver_user <> '';

CREATE TABLE executions (
    id                   TEXT    NOT NULL PRIMARY KEY,
    request_id           TEXT    NOT NULL UNIQUE REFERENCES requests (id),
    executor             TEXT    NOT NULL, -- its request's
    version              BIGINT  NOT NULL CHECK (version >= 1),
    started_at           BIGINT  NOT NULL,
    finished_at          BIGINT,
    outcome              TEXT    NOT NULL CHECK (outcome IN ('unknown', 'succeeded', 'failed')),
    detail               TEXT    NOT NULL,
    result_size          BIGINT  NOT NULL CHECK (result_size >= 0),
    returned_at          BIGINT,
    settled_by_workspace TEXT    NOT NULL,
    settled_by_user      TEXT    NOT NULL
);

CREATE INDEX executions_unfinished ON executions (started_at, request_id) WHERE executor = 'gateway' AND finished_at IS NULL;

-- What runs returned, apart from the executions so that looking at one reads
-- none.
CREATE TABLE results (
    execution_id TEXT  NOT NULL PRIMARY KEY REFERENCES executions (id),
    result       BYTEA NOT NULL
);

CREATE TABLE grants (
    request_id TEXT    NOT NULL PRIMARY KEY REFERENCES requests (id),
    scope      TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    granted_at BIGINT  NOT NULL,
    expires_at BIGINT  NOT NULL,
    revoked_at BIGINT,
    revoked_by TEXT    NOT NULL,
    CHECK ((revoked_at IS NULL) = (revoked_by = ''))
);

CREATE INDEX grants_in_force ON grants (expires_at) WHERE revoked_at IS NULL;

-- The tools of downstream servers: what each server says, and what is accepted.
CREATE TABLE tools (
    server            TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    seen_pin          TEXT    NOT NULL,
    seen_definition   BYTEA   NOT NULL,
    seen_at           BIGINT  NOT NULL,
    pinned_pin        TEXT    NOT NULL,
    pinned_definition BYTEA   NOT NULL,
    pinned_at         BIGINT  NOT NULL,
    pinned_by         TEXT    NOT NULL,
    PRIMARY KEY (server, name)
);

-- When each agent last applied a request, which is what a first use is told by.
CREATE TABLE uses (
    agent           TEXT    NOT NULL,
    owner_workspace TEXT    NOT NULL,
    owner_user      TEXT    NOT NULL,
    environment     TEXT    NOT NULL,
    integration     TEXT    NOT NULL,
    tool            TEXT    NOT NULL,
    last_used_at    BIGINT  NOT NULL,
    PRIMARY KEY (agent, owner_workspace, owner_user, environment, integration, tool)
);

-- Events have no foreign keys: they are what is left to check the rest by.
CREATE TABLE events (
    sequence   BIGINT  NOT NULL PRIMARY KEY CHECK (sequence >= 1),
    type       TEXT    NOT NULL,
    at         BIGINT  NOT NULL,
    request_id TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    surface    TEXT    NOT NULL,
    version    BIGINT  NOT NULL,
    digest     TEXT    NOT NULL,
    detail     BYTEA   NOT NULL,
    previous   BYTEA   NOT NULL UNIQUE, -- a hash has one successor, so the chain can't fork
    hash       BYTEA   NOT NULL
);

CREATE INDEX events_of_requests ON events (request_id, sequence) WHERE request_id <> '';

CREATE TABLE outbox (
    request_id      TEXT    NOT NULL REFERENCES requests (id),
    destination     TEXT    NOT NULL,
    wanted_revision BIGINT  NOT NULL,
    sent_revision   BIGINT  NOT NULL CHECK (sent_revision >= 0),
    reference       TEXT    NOT NULL, -- where the destination keeps it; empty until something arrived
    attempts        BIGINT  NOT NULL, -- since the last delivery that succeeded
    uncertain       BIGINT  NOT NULL CHECK (uncertain IN (0, 1)), -- what the last lease was told
    unsettled       BIGINT  NOT NULL CHECK (unsettled IN (0, 1)), -- a first delivery began, or may have arrived, and nobody knows
    due_since       BIGINT  NOT NULL, -- its place in the queue
    next_attempt_at BIGINT  NOT NULL, -- 0 is at once
    leased_until    BIGINT  NOT NULL, -- 0 is not leased
    failure         TEXT    NOT NULL,
    abandoned       BIGINT  NOT NULL CHECK (abandoned IN (0, 1)),
    PRIMARY KEY (request_id, destination)
);

CREATE INDEX outbox_due ON outbox (destination, due_since, request_id)
WHERE wanted_revision > sent_revision AND abandoned = 0;

CREATE TABLE tokens (
    id              TEXT    NOT NULL PRIMARY KEY,
    agent           TEXT    NOT NULL,
    owner_workspace TEXT    NOT NULL,
    owner_user      TEXT    NOT NULL,
    hash            BYTEA   NOT NULL UNIQUE,
    created_at      BIGINT  NOT NULL,
    created_by      TEXT    NOT NULL,
    revoked_at      BIGINT
);

CREATE TABLE passkeys (
    id              BYTEA   NOT NULL PRIMARY KEY,
    owner_workspace TEXT    NOT NULL,
    owner_user      TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    credential      BYTEA   NOT NULL,
    sign_count      BIGINT  NOT NULL CHECK (sign_count >= 0),
    enrolled_at     BIGINT  NOT NULL,
    used_at         BIGINT
);

CREATE INDEX passkeys_owned ON passkeys (owner_workspace, owner_user, enrolled_at, id);

-- What people still have to be told, or were told, of their own accounts.
CREATE TABLE personal_notices (
    id               TEXT    NOT NULL PRIMARY KEY,
    person_workspace TEXT    NOT NULL,
    person_user      TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    passkey          TEXT    NOT NULL,
    happened_at      BIGINT  NOT NULL,
    reference        TEXT    NOT NULL, -- where they were told; empty until then
    attempts         BIGINT  NOT NULL,
    next_attempt_at  BIGINT  NOT NULL, -- 0 is at once
    leased_until     BIGINT  NOT NULL, -- 0 is not leased
    failure          TEXT    NOT NULL,
    abandoned        BIGINT  NOT NULL CHECK (abandoned IN (0, 1))
);

CREATE INDEX personal_notices_due ON personal_notices (person_workspace, happened_at, id)
WHERE reference = '' AND abandoned = 0;

-- +goose Down
DROP TABLE personal_notices;
DROP TABLE passkeys;
DROP TABLE tokens;
DROP TABLE outbox;
DROP TABLE events;
DROP TABLE uses;
DROP TABLE tools;
DROP TABLE grants;
DROP TABLE results;
DROP TABLE executions;
DROP TABLE decisions;
DROP TABLE payloads;
DROP TABLE requests;
