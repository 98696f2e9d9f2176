package daemon

import (
	"context"
	"time"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm"
)

// general takes packets of general services from the manager's loop, which must
// not wait: what overflows is dropped, as a port would, and clients ask again.
func (d *daemon) general(ps []mad.Packet) {
	select {
	case d.gsi <- ps:
	default:
	}
}

// serve runs the subnet administrator.
func (d *daemon) serve(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(untilDeadline(d.sa.Deadline()))
		select {
		case ps := <-d.gsi:
			for i := range ps {
				d.sa.Handle(&ps[i], clock.Now())
			}
		case <-timer.C:
			d.sa.Expire(clock.Now())
		case <-ctx.Done():
			return
		}
		d.send()
	}
}

func untilDeadline(at clock.Time) time.Duration {
	if at == clock.Never {
		return time.Hour
	}
	return at.Sub(clock.Now())
}

// send sends what the administrator has to say. A packet that cannot be sent is
// like one that got lost.
func (d *daemon) send() {
	var p mad.Packet
	for d.sa.Next(&p) {
		if err := d.port.Send(&p); err != nil {
			d.log.Event(sm.Event{Level: sm.LevelVerbose, Where: "sa", Text: err.Error()})
		}
	}
}
