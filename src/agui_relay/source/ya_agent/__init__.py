"""Makes AG-UI events of a ya-agent-sdk stream, for applications that show or store such runs.

Importing this loads no agent library; they are loaded with the first stream event.
"""

from agui_relay.source.ya_agent.adapter import AguiAdapterConfig, AguiEventAdapter

__all__ = ["AguiAdapterConfig", "AguiEventAdapter"]
