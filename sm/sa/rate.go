package sa

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// rates are the encodings of what a link carries, by its nominal Gb/s times 2.
var rates = map[int]ib.Rate{
	5: ib.Rate2_5Gbps, 10: ib.Rate5Gbps, 20: ib.Rate10Gbps, 28: ib.Rate14Gbps, 40: ib.Rate20Gbps, 50: ib.Rate25Gbps,
	56: ib.Rate28Gbps, 60: ib.Rate30Gbps, 80: ib.Rate40Gbps, 100: ib.Rate50Gbps, 112: ib.Rate56Gbps, 120: ib.Rate60Gbps,
	160: ib.Rate80Gbps, 200: ib.Rate100Gbps, 224: ib.Rate112Gbps, 240: ib.Rate120Gbps, 336: ib.Rate168Gbps, 400: ib.Rate200Gbps,
	600: ib.Rate300Gbps, 800: ib.Rate400Gbps, 1200: ib.Rate600Gbps,
}

// rateOf returns the rate of a port's link, or 0 when its width or speed is none
// that is known (IBA 14.2.5.6).
func rateOf(p *topo.Port) ib.Rate {
	lanes := map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[p.Width]
	lane := map[uint8]int{1: 5, 2: 10, 4: 20}[p.Speed]
	if ext := map[uint8]int{1: 28, 2: 50, 4: 100, 8: 200}[p.SpeedExt]; ext != 0 {
		lane = ext
	}
	return rates[lanes*lane]
}
