package approvaltest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// People is an approval.Directory in memory. Somebody it was told nothing of
// may decide but holds no role. The zero value is empty; all methods are safe
// for concurrent use.
type People struct {
	mu         sync.Mutex
	roles      map[approval.Approver][]string
	ineligible map[approval.Approver]string
	failure    error
	asked      int
}

var _ approval.Directory = (*People)(nil)

// Give gives people a role.
func (p *People) Give(role string, people ...approval.Approver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roles == nil {
		p.roles = make(map[approval.Approver][]string)
	}
	for _, who := range people {
		if !slices.Contains(p.roles[who], role) {
			p.roles[who] = append(p.roles[who], role)
		}
	}
}

// Take takes a role from people.
func (p *People) Take(role string, people ...approval.Approver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, who := range people {
		p.roles[who] = slices.DeleteFunc(p.roles[who], func(held string) bool { return held == role })
	}
}

// Bar makes a person ineligible, such as a guest, with the reason in words; an
// empty reason lets them decide again.
func (p *People) Bar(who approval.Approver, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ineligible == nil {
		p.ineligible = make(map[approval.Approver]string)
	}
	p.ineligible[who] = reason
}

// Fail makes every look-up fail with an error that wraps
// approval.ErrUnverified and err; nil ends that.
func (p *People) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
}

// Asked is how many look-ups there were.
func (p *People) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Standing returns the roles among the given ones that the person holds.
func (p *People) Standing(_ context.Context, who approval.Approver, roles []policy.Role) (approval.Standing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.failure != nil {
		return approval.Standing{}, fmt.Errorf("%w: %w", approval.ErrUnverified, p.failure)
	}
	if reason := p.ineligible[who]; reason != "" {
		return approval.Standing{}, fmt.Errorf("%w: %s", approval.ErrIneligible, reason)
	}
	var standing approval.Standing
	for _, role := range roles {
		if slices.Contains(p.roles[who], role.Name) {
			standing.Roles = append(standing.Roles, approval.Membership{Role: role.Name, Via: "user"})
		}
	}
	return standing, nil
}
