// A plugin for opencode: writes to its stream how long it waits for its vendor, which
// `opencode run` keeps to itself, and when that wait is over.

// Only for the packages that opencode fetches before it loads a plugin; the agent's own npm has
// none of it.
delete process.env.npm_config_fetch_retries
delete process.env.npm_config_fetch_timeout

const waiting = new Set()

export const Everloop = async () => ({
  event: async ({ event }) => {
    if (event.type !== "session.status") return
    const { sessionID, status } = event.properties
    if (status.type === "retry") waiting.add(sessionID)
    else if (!waiting.delete(sessionID)) return
    const record = { type: "session_status", timestamp: Date.now(), sessionID, status }
    process.stdout.write(JSON.stringify(record) + "\n")
  },
})
