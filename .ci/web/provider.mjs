// An OpenID provider that others wrote, with its own pages on which anybody signs in
// by any name. It knows one client. Started with the client's id, its secret and its
// redirect address, it prints where it is.
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const [client_id, client_secret, redirect_uri] = process.argv.slice(2);
const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id, client_secret, redirect_uris: [redirect_uri] }],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
