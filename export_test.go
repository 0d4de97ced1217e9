package redlatch

// InLine returns how many callers of l stand in line for key without options of their own.
func InLine(l Locker, key string) int {
	e := l.(*engine)
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	if w := e.lines.byKey[e.cfg.prefix+key]; w != nil {
		return w.Len()
	}
	return 0
}
