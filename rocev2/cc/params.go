package cc

import "time"

// Rate is in bits a second, of whole frames.
type Rate uint64

// Units of Rate.
const (
	Mbps Rate = 1e6
	Gbps Rate = 1e9
)

// Fraction is a part of one, in units of 2^-20.
type Fraction uint32

// One is the whole.
const One Fraction = 1 << 20

// Params are the parameters of DCQCN. The zero value is the paper's; MLX5 has
// those of NVIDIA's cards. A field that is zero has the paper's value.
type Params struct {
	// LineRate is that of the port: the rate of a QP that no one limits. 0: 10 Gb/s.
	LineRate Rate

	// CNPInterval is the least time between two CNPs of a notification point to
	// one QP: the paper's N. 0: 50 µs. mlx5: min_time_between_cnps.
	CNPInterval time.Duration

	// G is how far α goes towards 1 with a CNP, and towards 0 without: the
	// paper's g. 0: 1/256. mlx5: 1 − dce_tcp_g/1024.
	G Fraction
	// AlphaPeriod is the time without a CNP after which α goes down: the paper's
	// K. 0: 55 µs. mlx5: dce_tcp_rtt.
	AlphaPeriod time.Duration
	// InitialAlpha is α at the first CNP. 0: 1. mlx5: initial_alpha_value/1024.
	InitialAlpha Fraction

	// CutPeriod is the least time between two cuts. 0: every CNP cuts. mlx5:
	// rate_reduce_monitor_period.
	CutPeriod time.Duration
	// KeepTarget leaves the target as it is with a cut after a cut, with no
	// increase between them. mlx5: clamp_tgt_rate 0.
	KeepTarget bool
	// MinRate is never gone below. 0: 1 Mb/s, as the paper has none. mlx5: rpg_min_rate.
	MinRate Rate

	// Timer and Bytes are the time and the bytes sent between two events of
	// increase: the paper's T and B. 0: 55 µs and 10 MB. mlx5: rpg_time_reset and,
	// in units of 64 bytes, rpg_byte_reset.
	Timer time.Duration
	Bytes uint64
	// Threshold is the number of events after which a phase ends: the paper's F.
	// 0: 5. mlx5: rpg_threshold.
	Threshold int
	// AI and HAI are added to the target with each event of additive and of hyper
	// increase. 0: 40 Mb/s and, as the paper doesn't say, ten times AI, the
	// ratio of mlx5. mlx5: rpg_ai_rate and rpg_hai_rate.
	AI, HAI Rate
}

// MLX5 has the defaults that NVIDIA publishes for ConnectX-4 and later ("DCQCN
// parameters"). The cards move α at the end of each AlphaPeriod; here a CNP does
// so at once, and begins another. RPG_MIN_DEC_FAC, no cut below 50 %, holds by
// itself, as a cut takes α/2.
var MLX5 = Params{
	CNPInterval: 4 * time.Microsecond,
	G:           One * (1024 - 1019) / 1024, AlphaPeriod: time.Microsecond, InitialAlpha: One * 1023 / 1024,
	CutPeriod: 4 * time.Microsecond, KeepTarget: true, MinRate: 1 * Mbps,
	Timer: 300 * time.Microsecond, Bytes: 32767 * 64, Threshold: 1, AI: 5 * Mbps, HAI: 50 * Mbps,
}

// WithDefaults returns p with the paper's value in each field that is zero. A
// Notifier and a Limiter want such parameters.
func (p Params) WithDefaults() Params {
	orDefault(&p.LineRate, 10*Gbps)
	orDefault(&p.CNPInterval, 50*time.Microsecond)
	orDefault(&p.G, One/256)
	orDefault(&p.AlphaPeriod, 55*time.Microsecond)
	orDefault(&p.InitialAlpha, One)
	orDefault(&p.MinRate, 1*Mbps)
	orDefault(&p.Timer, 55*time.Microsecond)
	orDefault(&p.Bytes, 10e6)
	orDefault(&p.Threshold, 5)
	orDefault(&p.AI, 40*Mbps)
	orDefault(&p.HAI, 10*p.AI)
	return p
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
