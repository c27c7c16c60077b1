"""Music: songs, library, playlists and player."""

from longloop.envs.errands.api import App

app = App("music", "Music: songs, library, playlists and player.")
