package slacksim

import "time"

// limit is how often a method may be called: a full bucket holds burst calls
// and refills by one each interval.
type limit struct {
	burst    float64
	interval time.Duration
	channel  bool // a bucket per channel, not per method
}

// Slack's tiers are calls per minute, "with occasional bursts"; how large these
// may be isn't documented, so a bucket holds a minute's calls. Posting is about
// one message per second and channel with short bursts.
var (
	tier2      = perMinute(20)
	tier3      = perMinute(50)
	tier4      = perMinute(100)
	special    = perMinute(300)
	perChannel = limit{burst: 3, interval: time.Second, channel: true}
)

func perMinute(calls int) limit {
	return limit{burst: float64(calls), interval: time.Minute / time.Duration(calls)}
}

// bucket is what is left of a limit.
type bucket struct {
	calls float64
	at    time.Time
}

// spend takes a call from a method's bucket. When it is empty, it returns how
// long to wait for the next. The caller holds mu.
func (w *Workspace) spend(method string, l limit, channel string) time.Duration {
	if !w.options.RateLimits {
		return 0
	}
	key := method
	if l.channel {
		key += " " + channel
	}
	now := w.now()
	b := w.buckets[key]
	if b == nil {
		b = &bucket{calls: l.burst, at: now}
		w.buckets[key] = b
	}
	b.calls = min(l.burst, b.calls+float64(now.Sub(b.at))/float64(l.interval))
	b.at = now
	if b.calls < 1 {
		return time.Duration((1 - b.calls) * float64(l.interval))
	}
	b.calls--
	return 0
}
