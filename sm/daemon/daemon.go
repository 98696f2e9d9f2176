package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm"
	"github.com/urxe/urxe/sm/dump"
	"github.com/urxe/urxe/sm/oslog"
	"github.com/urxe/urxe/sm/sa"
	"github.com/urxe/urxe/sm/subnet"
)

// logRouting is the bit of log_flags that asks for the dumps of the routing.
const logRouting = 0x40

// ErrIncomplete is what a single sweep returns when something was missing.
var ErrIncomplete = errors.New("the subnet is incomplete")

// ErrStandby is what it returns when another subnet manager is master.
var ErrStandby = errors.New("another subnet manager is master of the subnet")

type daemon struct {
	opts   atomic.Pointer[Options] // replaced as a whole: several goroutines read it
	log    *oslog.Log
	cfg    sm.Config
	port   mad.Port
	runner *sm.Runner
	stop   context.CancelFunc
	stood  bool // another subnet manager is master

	mu   sync.Mutex
	last *subnet.Snapshot

	dumps chan *subnet.Snapshot

	sa  sa.Server
	gsi chan []mad.Packet
}

// Run manages the subnet until ctx ends. SIGHUP reads the configuration again
// and sweeps, SIGUSR1 opens the log file anew.
func Run(ctx context.Context, o Options) error {
	// From the start: until they are taken, these signals end a process.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	d := &daemon{dumps: make(chan *subnet.Snapshot, 1), gsi: make(chan []mad.Packet, 256)}
	log, err := oslog.Open(oslog.Options{
		Path: o.LogFile, Flags: sm.Level(o.LogFlags), Prefix: o.LogPrefix, MaxMB: o.LogMaxMB, Erase: o.EraseLog || !o.AccumLog, JSON: o.JSONLog,
	})
	if err != nil {
		return err
	}
	defer log.Close()
	d.log = log
	o.look()
	d.opts.Store(&o)
	if err := d.prepare(); err != nil {
		d.log.Event(sm.Event{Level: sm.LevelError, Code: "6100", Where: "start", Text: err.Error()})
		return err
	}
	defer d.port.Close()
	return d.run(ctx, signals)
}

// prepare reads the files and opens the port.
func (d *daemon) prepare() (err error) {
	o := d.opts.Load()
	var warnings []string
	if d.cfg, warnings, err = o.config(); err != nil {
		return err
	}
	d.warn(warnings)
	if d.port, err = o.open(); err != nil {
		return err
	}
	local, err := d.port.Local()
	if err == nil {
		err = o.at(local)
	}
	if err != nil {
		return errors.Join(err, d.port.Close())
	}
	d.cfg.Report, d.cfg.Changed, d.cfg.StoodBy = d.log.Event, d.changed, d.stoodBy
	d.say("%s port %d, GUID %v", local.Device, local.Port, local.GUID)
	d.runner = sm.NewRunner(d.port, sm.New(d.cfg, local), d.general)
	return nil
}

func (d *daemon) run(ctx context.Context, signals <-chan os.Signal) error {
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	var wg sync.WaitGroup
	wg.Go(func() { d.obey(ctx, signals) })
	wg.Go(func() { d.write(ctx) })
	wg.Go(func() { d.serve(ctx) })
	wg.Go(func() { d.watch(ctx) })
	err := d.runner.Run(ctx)
	d.stop()
	wg.Wait()
	d.writeLast()
	d.log.Event(sm.Event{Level: sm.LevelSys, Where: "stop", Text: "Exiting SM"})
	if err != nil || !d.opts.Load().Once {
		return err
	}
	return d.verdict()
}

// verdict is how a single sweep ended.
func (d *daemon) verdict() error {
	switch {
	case d.stood:
		return ErrStandby
	case d.last == nil:
		return errors.New("ended before the sweep did")
	case len(d.last.Missing) > 0:
		return ErrIncomplete
	}
	return nil
}

func (d *daemon) stoodBy() {
	if d.stood = true; d.opts.Load().Once {
		d.stop()
	}
}

func (d *daemon) say(format string, args ...any) {
	d.log.Event(sm.Event{Level: sm.LevelInfo, Where: "start", Text: fmt.Sprintf(format, args...)})
}

func (d *daemon) warn(warnings []string) {
	for _, w := range warnings {
		d.log.Event(sm.Event{Level: sm.LevelError, Code: "6101", Where: "configuration", Text: w})
	}
}

// changed takes a snapshot: it is the manager that calls it, which must not wait.
func (d *daemon) changed(s *subnet.Snapshot) {
	d.mu.Lock()
	d.last = s
	d.mu.Unlock()
	d.sa.SetSnapshot(s)
	select {
	case <-d.dumps:
	default:
	}
	d.dumps <- s
	o := d.opts.Load()
	if d.cfg.LIDs.Dirty() && o.CacheDir != "" {
		if err := d.cfg.LIDs.Save(o.guid2lid()); err != nil {
			d.warn([]string{fmt.Sprintf("LIDs are not kept: %v", err)})
		}
	}
	if o.Once {
		d.stop()
	}
}

// write writes the dump files of the newest snapshot.
func (d *daemon) write(ctx context.Context) {
	for {
		select {
		case s := <-d.dumps:
			d.dump(s)
		case <-ctx.Done():
			return
		}
	}
}

// writeLast writes the snapshot that came just before the end.
func (d *daemon) writeLast() {
	select {
	case s := <-d.dumps:
		d.dump(s)
	default:
	}
}

func (d *daemon) dump(s *subnet.Snapshot) {
	o := d.opts.Load()
	err := dump.Subnet(o.DumpDir, s)
	if o.LogFlags&logRouting != 0 {
		err = errors.Join(err, dump.Routing(o.DumpDir, s))
	}
	if err != nil {
		d.warn([]string{fmt.Sprintf("dump files: %v", err)})
	}
}

// obey follows signals.
func (d *daemon) obey(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s == syscall.SIGUSR1 {
				if err := d.log.Reopen(); err != nil {
					fmt.Fprintln(os.Stderr, "usm:", err)
				}
				continue
			}
			d.reload(ctx)
		}
	}
}

// reload reads the configuration again. One that is wrong changes nothing.
func (d *daemon) reload(ctx context.Context) {
	o, cfg, warnings, err := d.opts.Load().reload()
	d.warn(warnings)
	if err != nil {
		d.warn([]string{fmt.Sprintf("the configuration stays as it was: %v", err)})
		return
	}
	d.opts.Store(o)
	d.say("configuration read again")
	cfg.LIDs, cfg.Report, cfg.Changed, cfg.StoodBy = d.cfg.LIDs, d.cfg.Report, d.cfg.Changed, d.cfg.StoodBy
	_ = d.runner.Do(ctx, func(m *sm.Manager, now clock.Time) { m.Reconfigure(cfg, now) })
}
