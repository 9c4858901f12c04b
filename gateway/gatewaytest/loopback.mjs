// Loaded before a server that listens on every address at a port that it is
// given: it listens on the loopback address, at a port that is free, and says
// which one. It ends with the test that has the other end of its input.
import net from 'node:net'

const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port, ...rest) {
  this.once('listening', () => console.error(`gatewaytest: port ${this.address().port}`))
  return listen.call(this, 0, '127.0.0.1', ...rest.filter(argument => typeof argument === 'function'))
}

process.stdin.on('end', () => process.exit()).resume()
