// How time is counted and shown.

/** Counts down by a clock that nobody sets, from what the server says is left. */
export class Countdown {
  private readonly ends: number;

  constructor(expiresAt: string, now: string) {
    this.ends = performance.now() + Date.parse(expiresAt) - Date.parse(now);
  }

  /** What is left, in milliseconds. */
  left(): number {
    return Math.max(this.ends - performance.now(), 0);
  }
}

/** A span as the review page shows it. */
export const span = (milliseconds: number): string => {
  const seconds = Math.max(Math.ceil(milliseconds / 1000), 0);
  const days = Math.floor(seconds / 86_400);
  const hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${seconds % 60} s`;
  return `${seconds} s`;
};

/** Where and in which language the reader is, as the host says. */
export const reader: { locale: string | undefined; timeZone: string | undefined } = { locale: undefined, timeZone: undefined };

/** A moment in the reader's own time zone. */
export const moment = (at: string): string => {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return at;
  const how: Intl.DateTimeFormatOptions = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
  try {
    return time.toLocaleString(reader.locale, { ...how, timeZone: reader.timeZone });
  } catch {
    return time.toLocaleString(undefined, how); // the host named a place that this browser doesn't know
  }
};
