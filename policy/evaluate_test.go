package policy_test

// smallest is a policy with only what is required, for tests to add to.
const smallest = `version: 1
mode: cautious
roles:
  oncall: {users: [U0ADA, U0GRACE]}
approval:
  requires: [{role: oncall}]
`
