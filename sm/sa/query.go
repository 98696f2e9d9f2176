package sa

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/sm/subnet"
)

// attribute is how one attribute is answered.
type attribute struct {
	layout *mad.Layout
	table  bool // GetTable is allowed
	fill   func(*query) mad.Status
}

var attributes = map[mad.AttributeID]attribute{
	mad.AttrClassPortInfo:    {mad.ClassPortInfo(nil).Layout(), false, classPortInfo},
	mad.AttrNodeRecord:       {mad.NodeRecord(nil).Layout(), true, nodeRecords},
	mad.AttrPortInfoRecord:   {mad.PortInfoRecord(nil).Layout(), true, portInfoRecords},
	mad.AttrSwitchInfoRecord: {mad.SwitchInfoRecord(nil).Layout(), true, switchInfoRecords},
	mad.AttrLinkRecord:       {mad.LinkRecord(nil).Layout(), true, linkRecords},
	mad.AttrSMInfoRecord:     {mad.SMInfoRecord(nil).Layout(), true, smInfoRecords},
	mad.AttrLinearFTRecord:   {mad.LinearForwardingTableRecord(nil).Layout(), true, linearFTRecords},
	mad.AttrPathRecord:       {mad.PathRecord(nil).Layout(), true, pathRecords},
}

// query is a request under way: what is asked, and the records found.
type query struct {
	m      mad.MAD
	snap   *subnet.Snapshot
	mask   uint64
	layout *mad.Layout
	single bool   // Get: more than one record is too many
	from   ib.LID // the asker's

	data  []byte
	count int
}

// stride is the distance of records in the answer: multiples of 8 bytes.
func (q *query) stride() int { return (q.layout.Size + 7) &^ 7 }

// full reports whether further records would only be thrown away.
func (q *query) full() bool { return q.count > maxRecords || q.single && q.count > 1 }

// add appends a record if it is what is asked for.
func (q *query) add(record []byte) {
	if q.layout.Matches(q.mask, record, q.m.Data()) {
		q.append(record)
	}
}

func (q *query) append(record []byte) {
	if q.count++; q.count > maxRecords {
		return
	}
	q.data = append(q.data, record...)
	for len(q.data)%8 != 0 {
		q.data = append(q.data, 0)
	}
}

// done gives the status of a query that is through.
func (q *query) done() mad.Status {
	if q.count > maxRecords {
		return mad.StatusSANoResources
	}
	return mad.StatusOK
}

// has reports whether the query names a component.
func (q *query) has(field string) bool {
	n := q.layout.Component(field)
	return n >= 0 && q.mask>>n&1 != 0
}
