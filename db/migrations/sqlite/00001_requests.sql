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
    stated_count       INTEGER,
    reversible         INTEGER CHECK (reversible IN (0, 1)),
    executor           TEXT    NOT NULL CHECK (executor IN ('agent', 'gateway')),
    tool_pin           TEXT    NOT NULL,
    unpinned           INTEGER NOT NULL CHECK (unpinned IN (0, 1)),
    hints              TEXT    NOT NULL, -- JSON of policy.Hints
    session            TEXT    NOT NULL,
    client_only        INTEGER NOT NULL CHECK (client_only IN (0, 1)), -- only the agent's client was told
    host_view          INTEGER NOT NULL CHECK (host_view IN (0, 1)), -- a view of the agent's host shows it
    version            INTEGER NOT NULL CHECK (version >= 1),
    digest             BLOB    NOT NULL,
    effect             TEXT    NOT NULL CHECK (effect IN ('allow', 'require_approval', 'deny')),
    tier               INTEGER NOT NULL,
    ruling             TEXT    NOT NULL, -- JSON of policy.Ruling
    rules              TEXT    NOT NULL, -- the ids of its rules, each between line breaks
    explanation        TEXT    NOT NULL,
    asked              BLOB    NOT NULL, -- the digest of version 1
    reminders          INTEGER NOT NULL CHECK (reminders >= 0),
    escalated          INTEGER NOT NULL CHECK (escalated IN (0, 1)),
    status             TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'applied')),
    reason             TEXT    NOT NULL,
    editors            TEXT    NOT NULL, -- JSON of []approval.Approver
    granted_by         TEXT    NOT NULL, -- the request whose grant approved it
    execution_id       TEXT,
    created_at         INTEGER NOT NULL,
    expires_at         INTEGER NOT NULL,
    decided_at         INTEGER,
    apply_by           INTEGER,
    closed_at          INTEGER,
    updated_at         INTEGER NOT NULL,
    deadline           INTEGER, -- when the request expires unless something happens; NULL once the status is final
    due_at             INTEGER, -- the deadline, an earlier time to remind people, or when a grant ends
    revision           INTEGER NOT NULL CHECK (revision >= 1),
    CHECK ((deadline IS NULL) = (status IN ('rejected', 'expired', 'applied'))),
    CHECK (deadline IS NULL OR (due_at IS NOT NULL AND due_at <= deadline)),
    CHECK ((closed_at IS NULL) = (status IN ('pending', 'approved'))),
    CHECK ((execution_id IS NULL) = (status <> 'applied')),
    CHECK (decided_at IS NULL OR status <> 'pending'),
    CHECK (status NOT IN ('approved', 'applied') OR (decided_at IS NOT NULL AND apply_by IS NOT NULL))
) STRICT;

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
    version    INTEGER NOT NULL CHECK (version >= 1),
    payload    BLOB    NOT NULL,
    PRIMARY KEY (request_id, version)
) STRICT;

CREATE TABLE decisions (
    receipt            TEXT    NOT NULL PRIMARY KEY,
    signed_receipt     TEXT    NOT NULL, -- empty if nobody signed it
    request_id         TEXT    NOT NULL REFERENCES requests (id),
    ordinal            INTEGER NOT NULL CHECK (ordinal >= 1), -- its place among the request's decisions
    approver_workspace TEXT    NOT NULL,
    approver_user      TEXT    NOT NULL,
    verdict            TEXT    NOT NULL CHECK (verdict IN ('approve', 'reject')),
    reason             TEXT    NOT NULL,
    surface            TEXT    NOT NULL,
    scope              TEXT    NOT NULL,
    version            INTEGER NOT NULL CHECK (version >= 1),
    digest             BLOB    NOT NULL,
    roles              TEXT    NOT NULL, -- JSON of []approval.Membership
    own                INTEGER NOT NULL CHECK (own IN (0, 1)), -- the approver's own request or edit
    decided_at         INTEGER NOT NULL,
    revision           INTEGER NOT NULL, -- the request's revision that has it first
    UNIQUE (request_id, ordinal),
    UNIQUE (request_id, version, approver_workspace, approver_user, verdict),
    CHECK ((surface IN ('policy', 'in-band', 'app', 'grant')) = (approver_workspace = '' AND approver_user = '')) -- everywhere else a person decides
) STRICT;

CREATE INDEX decisions_of_people ON decisions (approver_workspace, approver_user, receipt) WHERE approver_user <> '';

CREATE TABLE executions (
    id                   TEXT    NOT NULL PRIMARY KEY,
    request_id           TEXT    NOT NULL UNIQUE REFERENCES requests (id),
    executor             TEXT    NOT NULL, -- its request's
    version              INTEGER NOT NULL CHECK (version >= 1),
    started_at           INTEGER NOT NULL,
    finished_at          INTEGER,
    outcome              TEXT    NOT NULL CHECK (outcome IN ('unknown', 'succeeded', 'failed')),
    detail               TEXT    NOT NULL,
    result_size          INTEGER NOT NULL CHECK (result_size >= 0),
    returned_at          INTEGER,
    settled_by_workspace TEXT    NOT NULL,
    settled_by_user      TEXT    NOT NULL
) STRICT;

CREATE INDEX executions_unfinished ON executions (started_at, request_id) WHERE executor = 'gateway' AND finished_at IS NULL;

-- What runs returned, apart from the executions so that looking at one reads
-- none.
CREATE TABLE results (
    execution_id TEXT  NOT NULL PRIMARY KEY REFERENCES executions (id),
    result       BLOB  NOT NULL
) STRICT;

CREATE TABLE grants (
    request_id TEXT    NOT NULL PRIMARY KEY REFERENCES requests (id),
    scope      TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    granted_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER,
    revoked_by TEXT    NOT NULL,
    CHECK ((revoked_at IS NULL) = (revoked_by = ''))
) STRICT;

CREATE INDEX grants_in_force ON grants (expires_at) WHERE revoked_at IS NULL;

-- The tools of downstream servers: what each server says, and what is accepted.
CREATE TABLE tools (
    server            TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    seen_pin          TEXT    NOT NULL,
    seen_definition   BLOB    NOT NULL,
    seen_at           INTEGER NOT NULL,
    pinned_pin        TEXT    NOT NULL,
    pinned_definition BLOB    NOT NULL,
    pinned_at         INTEGER NOT NULL,
    pinned_by         TEXT    NOT NULL,
    PRIMARY KEY (server, name)
) STRICT;

-- When each agent last applied a request, which is what a first use is told by.
CREATE TABLE uses (
    agent           TEXT    NOT NULL,
    owner_workspace TEXT    NOT NULL,
    owner_user      TEXT    NOT NULL,
    environment     TEXT    NOT NULL,
    integration     TEXT    NOT NULL,
    tool            TEXT    NOT NULL,
    last_used_at    INTEGER NOT NULL,
    PRIMARY KEY (agent, owner_workspace, owner_user, environment, integration, tool)
) STRICT;

-- Events have no foreign keys: they are what is left to check the rest by.
CREATE TABLE events (
    sequence   INTEGER NOT NULL PRIMARY KEY CHECK (sequence >= 1),
    type       TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    surface    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    digest     TEXT    NOT NULL,
    detail     BLOB    NOT NULL,
    previous   BLOB    NOT NULL UNIQUE, -- a hash has one successor, so the chain can't fork
    hash       BLOB    NOT NULL
) STRICT;

CREATE INDEX events_of_requests ON events (request_id, sequence) WHERE request_id <> '';

CREATE TABLE outbox (
    request_id      TEXT    NOT NULL REFERENCES requests (id),
    destination     TEXT    NOT NULL,
    wanted_revision INTEGER NOT NULL,
    sent_revision   INTEGER NOT NULL CHECK (sent_revision >= 0),
    reference       TEXT    NOT NULL, -- where the destination keeps it; empty until something arrived
    attempts        INTEGER NOT NULL, -- since the last delivery that succeeded
    uncertain       INTEGER NOT NULL CHECK (uncertain IN (0, 1)), -- what the last lease was told
    unsettled       INTEGER NOT NULL CHECK (unsettled IN (0, 1)), -- a first delivery began, or may have arrived, and nobody knows
    due_since       INTEGER NOT NULL, -- its place in the queue
    next_attempt_at INTEGER NOT NULL, -- 0 is at once
    leased_until    INTEGER NOT NULL, -- 0 is not leased
    failure         TEXT    NOT NULL,
    abandoned       INTEGER NOT NULL CHECK (abandoned IN (0, 1)),
    PRIMARY KEY (request_id, destination)
) STRICT;

CREATE INDEX outbox_due ON outbox (destination, due_since, request_id)
WHERE wanted_revision > sent_revision AND abandoned = 0;

CREATE TABLE tokens (
    id              TEXT    NOT NULL PRIMARY KEY,
    agent           TEXT    NOT NULL,
    owner_workspace TEXT    NOT NULL,
    owner_user      TEXT    NOT NULL,
    hash            BLOB    NOT NULL UNIQUE,
    created_at      INTEGER NOT NULL,
    created_by      TEXT    NOT NULL,
    revoked_at      INTEGER
) STRICT;

CREATE TABLE passkeys (
    id              BLOB    NOT NULL PRIMARY KEY,
    owner_workspace TEXT    NOT NULL,
    owner_user      TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    credential      BLOB    NOT NULL,
    sign_count      INTEGER NOT NULL CHECK (sign_count >= 0),
    enrolled_at     INTEGER NOT NULL,
    used_at         INTEGER
) STRICT;

CREATE INDEX passkeys_owned ON passkeys (owner_workspace, owner_user, enrolled_at, id);

-- What people still have to be told, or were told, of their own accounts.
CREATE TABLE personal_notices (
    id               TEXT    NOT NULL PRIMARY KEY,
    person_workspace TEXT    NOT NULL,
    person_user      TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    passkey          TEXT    NOT NULL,
    happened_at      INTEGER NOT NULL,
    reference        TEXT    NOT NULL, -- where they were told; empty until then
    attempts         INTEGER NOT NULL,
    next_attempt_at  INTEGER NOT NULL, -- 0 is at once
    leased_until     INTEGER NOT NULL, -- 0 is not leased
    failure          TEXT    NOT NULL,
    abandoned        INTEGER NOT NULL CHECK (abandoned IN (0, 1))
) STRICT;

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
